"""Whether prompts that are linked are answered rightly: facts of several documents, and questions.

In reading order: documents and questions (``library``), how they are linked (``ways``), prompts
that a trained model answers (``asked``), where its attention goes (``attention``), what that says
(``judged``), its pictures (``pictures``), and the measurement (``measured``).
"""
