"""What routers hear of the store.

In reading order: events as they understand them (``router_events``), and the thread that follows
the store and has vLLM tell (``change_follower``).
"""
