"""Sockets: listeners that open and close at run time, and connections that pass whole frames to a session (WIRE-9).

    listeners = Listeners(loop, limits, reports, readers)
    listeners.bind("ins-7k2m9qxa", host, port, make_session)     at run time, per instance (CKA-3)
    connection.respond(frame, delay_ms)                           from the session, now or later
    connection.respond_parts([bytes, FileSlice, …], delay_ms, on_written)

A session never uses a socket; this package never parses a frame.
"""
