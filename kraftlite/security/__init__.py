"""Rules of authentication and authorization. Pure: no sockets, no files, and every time is an argument."""
