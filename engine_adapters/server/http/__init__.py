"""What clients reach.

In reading order: what all requests share (``service``) and count (``metrics``); how a request
becomes a prompt of tokens (``prompts``), how that runs (``turn``), and what is heard of
failures (``failures``); the paths for conversations (``conversations``), for texts
(``texts``), for context caches (``caches``) and for those who watch (``watching``); all of them
(``application``), and how long they are served (``serving``).
"""
