"""checks.py DIR [NAME…]: drives the applications in DIR through repeats, crashes, freezes and hand-overs, and counts the rows
that were committed. One line per check.

Environment: SIDECAR, DATABASE_URL, FENCE_REALM, PSQL.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import psycopg

folder, only = sys.argv[1], sys.argv[2:]
environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PGOPTIONS": ""}
database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


class App(subprocess.Popen):
    """app.py, beside the check."""

    def __init__(self, *args, **env):
        super().__init__([sys.executable, folder + "/python/app.py", *map(str, args)], env=environment | env, text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def held(self):
        line = self.stdout.readline()
        if not line.startswith("held"):
            raise AssertionError("the application did not hold: " + line + self.stdout.read())
        return self

    def ends(self):
        """Its answer, after it was let go on."""
        return self.communicate("\n\n", timeout=60)[0].strip()


def app(*args, **env):
    return App(*args, **env).ends()


def post(path, body=None, token=None):
    request = urllib.request.Request(os.environ["SIDECAR"] + "/v1/leases/" + path, b"" if body is None else json.dumps(body).encode(),
                                     ({"Fence-Token": token} if token else {}) | ({"Content-Type": "application/json"} if body else {}))
    with urllib.request.urlopen(request, timeout=10) as answer:
        text = answer.read()
        return json.loads(text) if text else {}


def lease(order):
    return post("acquire", {"id": order, "holder": "psql"})["fence_token"]


def psql(order, amount, token, realm=os.environ["FENCE_REALM"]):
    """charge.sql: what it said, errors by their SQLSTATE."""
    variables = {"token": token, "realm": realm, "order_id": order, "amount": amount, "ON_ERROR_STOP": 1, "VERBOSITY": "sqlstate"}
    done = subprocess.run([os.environ["PSQL"], "-X", os.environ["DATABASE_URL"], *(f"-v{k}={v}" for k, v in variables.items()),
                           "-f", folder + "/psql/charge.sql"], env=environment, text=True, capture_output=True, timeout=60)
    state = re.search(r"ERROR: +(\w{5})", done.stderr)
    return "refused " + state[1] if state else (done.stdout + done.stderr).strip()


def rows(order):
    return [amount for amount, in database.execute("SELECT amount FROM charges WHERE order_id = %s ORDER BY id", (order,))]


def same(what, got, want):
    if got != want:
        raise AssertionError(f"{what}: {got!r}, want {want!r}")


def booked(answer):
    if not re.fullmatch(r"booked charge \d+", answer):
        raise AssertionError(f"{answer!r}, want booked")
    return answer.removeprefix("booked ")


def repeats(order):
    first = booked(app(order, 4990))
    for _ in range(3):
        same("a repeat", app(order, 4990), "replayed " + first)
    same("another amount", app(order, 5990), "refused FS110")
    same("rows", rows(order), [4990])


def killed_before_the_commit(order):
    one = App(order, 4990, "commit").held()
    one.kill()
    one.communicate()
    while "Refused: held" in (answer := app(order, 4990)):  # until its lease has run out
        pass
    booked(answer)
    same("rows", rows(order), [4990])


def frozen_before_the_write(order):
    """It wakes up when another holder has the lease and has written nothing yet."""
    one = App(order, 4990, "begin").held()
    one.send_signal(signal.SIGSTOP)
    token = until_taken(order)
    one.send_signal(signal.SIGCONT)
    answer = one.ends()
    same("rows after it woke up", rows(order), [])
    same("the answer", answer, "refused FS105")
    booked(psql(order, 4990, token))
    same("rows", rows(order), [4990])
    post("release", token=token)


def frozen_before_the_commit(order):
    """The lease's row is its own until its transaction ends, which the server sees to. Then the next holder writes."""
    one = App(order, 4990, "commit").held()
    one.send_signal(signal.SIGSTOP)
    token = until_taken(order)
    booked(psql(order, 4990, token))
    one.send_signal(signal.SIGCONT)
    one.ends()
    same("rows", rows(order), [4990])
    post("release", token=token)


def until_taken(order):
    for _ in range(120):
        try:
            return lease(order)
        except urllib.error.HTTPError as e:
            if e.code not in (409, 503):
                raise
        time.sleep(0.25)
    raise AssertionError("the lease was not free after 30 s")


def two_languages(order):
    token = lease(order)
    first = booked(psql(order, 4990, token))
    same("a repeat", psql(order, 4990, token), "replayed " + first)
    same("another amount", psql(order, 1, token), "refused FS110")
    post("release", token=token)
    same("a lease that was given back", psql(order, 4990, token), "refused FS106")
    same("in Python", app(order, 4990), "replayed " + first)
    same("rows", rows(order), [4990])


def another_store(order):
    answer = app(order, 4990, FENCE_REALM="another")
    if "effects need the same database" not in answer:
        raise AssertionError(f"{answer!r}, want a refusal at the start")
    same("psql", psql(order, 4990, "default:x#1", "another"), "another store")
    same("rows", rows(order), [])


failed = False
for check in (repeats, two_languages, killed_before_the_commit, frozen_before_the_write, frozen_before_the_commit, another_store):
    name = check.__name__.replace("_", "-")
    if only and name not in only:
        continue
    try:
        check(f"{name}-{os.getpid()}")
        print("ok     ", name, flush=True)
    except (AssertionError, subprocess.TimeoutExpired, OSError) as e:
        failed = True
        print("FAILED ", name + ":", str(e).replace("\n", " | "), flush=True)
sys.exit(failed)
