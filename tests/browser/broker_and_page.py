"""Serves a page with MQTT.js, starts a broker, and runs browser.js: `broker_and_page.py HOMING MQTT_JS`."""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "clients"))

from pki import Authority  # noqa: E402
from programs import Broker, stop_all  # noqa: E402

# Chromium takes a second to start; all cases take some seconds.
LONGEST_RUN_SECONDS = 180


def serve(files):
    """Serves `files`, pairs of a path and (type, content), on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            kind, content = files.get(self.path, ("text/plain", None))
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def listeners(folder, page_port):
    certificate, key = Authority(folder, "authority").issue("broker", "ecdsa", "DNS:localhost,IP:127.0.0.1")
    websocket = 'address = "127.0.0.1:0"\nprotocol = "websocket"\n'
    origins = f'origins = ["http://127.0.0.1:{page_port}"]\n'
    tls = f'[listeners.tls]\ncertificates = [{{ certificate = "{certificate}", key = "{key}" }}]\n'
    return {"ws": websocket + origins, "wss": websocket + origins + tls, "same-host": websocket}


def main():
    homing, mqtt_js = (Path(each).resolve() for each in sys.argv[1:])
    folder = Path(tempfile.mkdtemp())
    try:
        page = b'<!doctype html><meta charset="utf-8"><title>MQTT.js</title><script src="/mqtt.min.js"></script>'
        port = serve({"/": ("text/html", page), "/mqtt.min.js": ("text/javascript", mqtt_js.read_bytes())})
        broker = Broker(homing, folder, listeners(folder, port))
        urls = {
            "page": f"http://127.0.0.1:{port}/",
            # The same page, of another origin.
            "foreignPage": f"http://localhost:{port}/",
            "ws": f"ws://127.0.0.1:{broker.ports['ws']}",
            "wss": f"wss://127.0.0.1:{broker.ports['wss']}",
            "sameHost": f"ws://127.0.0.1:{broker.ports['same-host']}",
        }
        arguments = ["node", str(HERE / "browser.js"), json.dumps(urls)]
        failed = subprocess.run(arguments, timeout=LONGEST_RUN_SECONDS).returncode != 0
        if not broker.is_running():
            print("FAIL  the broker did not outlive the browser")
            failed = True
        if failed:
            print(f"the end of the broker's log:\n{broker.tail()}")
        return int(failed)
    finally:
        stop_all()
        shutil.rmtree(folder)


sys.exit(main())
