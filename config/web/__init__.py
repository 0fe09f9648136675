"""The web server: gunicorn's master and parser, and a worker of our own that gives a thread to whole requests only.

Headers and bodies arrive on an event loop, under deadlines and limits. A thread of the lane of a request's path then
calls Django. What a slow reader does not take is sent by the loop again (decision 90).
"""
