"""A real hub for the tests: Flask-WebSub as hub and publisher in one program, on loopback.

    hub.py serve DATABASE [BROKER]   prints its port, then serves until it is ended
    hub.py work DATABASE BROKER      the Celery worker of such a hub

Without a broker tasks are done inside the request ("eager"): the hub verifies before it answers. With one (redis://...) it
answers 202 and verifies afterwards. Leases last LEASE seconds whatever is asked.

    GET  /feed             the topic, an Atom feed of as many entries as were published
    POST /publish?n=N      there are N entries now, and the hub is told
    GET  /subscribers      one callback a line
"""

import os
import sqlite3
import sys
import threading

from celery import Celery
from flask import Flask, Response, request
from flask_websub.hub import Hub, SQLite3HubStorage
from flask_websub.publisher import init_publisher, publisher
from werkzeug.serving import make_server

ENTRY = """<entry><id>urn:real:{n}</id><title>Entry {n}</title><updated>2026-01-01T00:{n:02}:00Z</updated>
<link href="http://entries.test/{n}"/></entry>"""

mode, database = sys.argv[1:3]
broker = sys.argv[3] if len(sys.argv) > 3 else None
lease = int(os.environ.get("LEASE", "8"))

app = Flask(__name__)
celery = Celery("hub", broker=broker or "memory://")
celery.conf.update(
    task_always_eager=broker is None,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)
hub = Hub(
    SQLite3HubStorage(database),
    celery,
    SIGNATURE_ALGORITHM="sha512" if broker is None else "sha1",
)
app.config.update(HUB_MIN_LEASE_SECONDS=1, HUB_DEFAULT_LEASE_SECONDS=lease, HUB_MAX_LEASE_SECONDS=lease)
app.register_blueprint(hub.build_blueprint(url_prefix="/hub"))
init_publisher(app)

lock = threading.Lock()
published = 1


@app.route("/feed")
@publisher()
def feed():
    with lock:
        entries = "".join(ENTRY.format(n=n) for n in range(published, 0, -1))
    text = '<feed xmlns="http://www.w3.org/2005/Atom"><id>urn:real</id><title>Real</title>%s</feed>' % entries
    return Response(text, mimetype="application/atom+xml")


@app.route("/publish", methods=["POST"])
def publish():
    global published
    with lock:
        published = int(request.args["n"])
    hub.send_change_notification.delay(request.host_url + "feed")
    return "", 204


@app.route("/subscribers")
def subscribers():
    callbacks = hub.storage.get_callbacks(request.host_url + "feed")
    return Response("".join(url + "\n" for url, _ in callbacks), mimetype="text/plain")


if mode == "work":
    celery.worker_main(["worker", "--pool=solo", "--loglevel=warning", "--without-gossip", "--without-mingle"])
else:
    # Flask-WebSub sets the journal mode whenever it opens the file, and does not wait where another process does so too. As
    # long as somebody has it open there is nothing to set.
    kept = sqlite3.connect(database)
    kept.execute("SELECT count(*) FROM hub").fetchone()
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.port, flush=True)
    server.serve_forever()
