"""The authoritative DNS answerer: bytes to bytes in `answer`, sockets in `server` and `tcp`.

Law: a packet has one right answer. `fast` gives the common ones from prepared bytes, `full` gives every one through
dnspython, and both take what they say from `content`.
"""
