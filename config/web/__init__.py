"""Web server: gunicorn's master and parser, with a worker that assigns a thread to complete requests only.

Headers and bodies are received by an event loop, under deadlines and limits. A thread of the lane of the request's path
then calls Django. Data that a slow reader does not accept is sent by the loop (decision 90).
"""
