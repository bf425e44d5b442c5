"""app.py ORDER AMOUNT [HOLD…]: books a charge of an order once, under a lease on the order.

Environment: SIDECAR (its control listener), DATABASE_URL, FENCE_REALM. At each HOLD (begin, commit) it says so and waits for a
line, so that a check can freeze or kill it there.
"""

import hashlib
import os
import sys

import effects
import keeper
import psycopg

order, amount, holds = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def hold(point):
    if point in holds:
        print("held", point, flush=True)
        sys.stdin.readline()


def connect():
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)


def book(conn):
    # the transaction's own connection, else the row is not part of it
    number, = conn.execute("INSERT INTO charges (order_id, amount) VALUES (%s, %s) RETURNING id", (order, amount)).fetchone()
    hold("commit")
    return b"charge %d" % number


with connect() as conn:
    effects.check_store(conn, os.environ["FENCE_REALM"])
    lease = keeper.Keeper(order, os.environ["SIDECAR"].removeprefix("http://"), holder=str(os.getpid()))
    hold("begin")
    try:
        result, replayed = effects.once(conn, lease.token(), "default", "charge", "order:" + order,
                                        hashlib.sha256(b"%d" % amount).digest(), book)
        print("replayed" if replayed else "booked", result.decode(), flush=True)
    except psycopg.Error as e:
        print("refused", e.sqlstate, flush=True)
    if lease.held():
        lease.release()
