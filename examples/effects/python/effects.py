"""Writes of the application's own rows that happen once, with psycopg 3. Copy it into your application.

The rows and the key are written in one transaction, in the database that the sidecar's store is in: both are there, or neither.
"""

EXPIRED_OR_TAKEN = {"FS103", "FS104", "FS105", "FS106", "FS107"}  # a hand-over: stop, undo nothing, repeat nothing
CONFLICT = "FS110"  # the key was used for something else


def check_store(conn, realm, schema="fence"):
    """At the start: realm is the one that `fence-sidecar store status` prints. A lease of another store proves nothing here."""
    found, = conn.execute(f"SELECT realm FROM {schema}.effects_store()").fetchone()
    if found != realm:
        raise SystemExit(f"this database's store has realm {found}, the sidecar's is {realm}: effects need the same database")


def once(conn, token, tenant, name, key, fingerprint, work, schema="fence"):
    """Runs work(conn) once per (tenant, name, key), and returns its bytes, then and at every repeat; and whether it is a repeat.

    conn is in autocommit mode, so that the transaction is the one below. A psycopg.Error whose sqlstate begins with FS is a
    refusal: nothing was written. After a lost connection the commit was perhaps applied: call once() again with the same key.
    """
    with conn.transaction():
        replayed, result = conn.execute(
            f"SELECT replayed, result FROM {schema}.begin_effect(%s, %s, %s, %s, %s)",
            (token, tenant, name, key, fingerprint)).fetchone()
        if not replayed:
            result = work(conn)
            conn.execute(f"SELECT {schema}.end_effect(%s, %s, %s, %s)", (tenant, name, key, result))
    return result, replayed
