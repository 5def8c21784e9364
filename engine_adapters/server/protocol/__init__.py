"""OpenAI's protocol as values: what clients ask, and what they are answered. Pure.

In reading order: ``limits``, and the error of a request (``api_error``); JSON objects whose unknown
keys are errors (``fields``); what all requests for text have in common (``generation``) and what
the others add (``prompt_request``, ``chat_request``, ``cache_request``); the text of a chat
(``chat_template``); the text of tokens as they come (``detokenizer``), up to a stop string
(``stop_scanner``); ``replies`` and the frames of a stream (``events``).
"""
