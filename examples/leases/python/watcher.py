"""A keeper that is told at once when its lease is lost, by the sidecar's watch stream. It needs keeper.py beside it.

Each ping is answered by a pong, and only pongs renew. Answer them where it shows that the work goes on: a thread that does nothing
else, like this one, proves no more than that the process runs.
"""

import http.client
import json

from keeper import Keeper, Refused


class Watcher(Keeper):
    def _renew(self):
        while self.held():
            try:
                self._watch()
            except (Refused, OSError, http.client.HTTPException):
                pass  # the stream broke or fell silent: another one, while the lease is trusted
            self._ended.wait(min(self._granted / 10, self.trusted_for()))
        self._lose()

    def _watch(self):
        """One stream, read until it ends. A silence of half the trust means that it is dead: pings come more often."""
        connection = http.client.HTTPConnection(self._address, timeout=min(self._granted / 2, self.trusted_for()))
        try:
            connection.request("GET", "/v1/leases/watch", headers={"Fence-Token": self._token})
            answer, event = connection.getresponse(), ""
            if answer.status != 200:
                self._extend("confirm")  # tells whether the lease is lost; if not, it is renewed
            while answer.status == 200 and (line := answer.readline().decode()):
                field, _, value = line.strip().partition(": ")
                if field == "event":
                    event = value
                elif field == "data":
                    self._on(event, json.loads(value))
                connection.sock.settimeout(min(self._granted / 2, self.trusted_for()))
        finally:
            connection.close()

    def _on(self, event, data):
        if event == "ping":
            self._extend("pong", data)  # {"n": …, "watch": …} is what a pong wants
        elif event == "cancelled":
            self.cancelled = True
        elif event == "lost":
            with self._one:  # if by its own release, that has its answer now
                self._lose()
