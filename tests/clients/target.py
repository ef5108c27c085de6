"""Where a driver connects, and which of its cases it runs: `DRIVER URL [CASE...]`.

The scheme of the URL is mqtt, mqtts, ws or wss. The environment (SSL_CERT_FILE) names the authority.
"""

import sys
from urllib.parse import urlsplit

URL = urlsplit(sys.argv[1])
HOST, PORT = URL.hostname, URL.port
IS_TLS = URL.scheme in ("mqtts", "wss")
IS_WEBSOCKET = URL.scheme in ("ws", "wss")
# Follows the name of the client in the output.
SUFFIX = "" if URL.scheme == "mqtt" else f" {URL.scheme}"


def chosen(cases):
    """The cases that the command line names; all if it names none."""
    names = sys.argv[2:]
    return [case for case in cases if not names or case.__name__ in names]
