"""The authoritative DNS answerer: bytes to bytes in `answer`, sockets in `server`, `udp` and `tcp`.

Law: a packet has one right answer. `full` gives every one through dnspython; `fast` gives those of services from prepared
bytes, and `StaticWay` those for everyone. All take what they say from `static` and `content`, and what DNSSEC adds to it
from `dnssec`.
"""
