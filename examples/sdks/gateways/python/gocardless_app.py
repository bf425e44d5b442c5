"""GoCardless's Python SDK through the sidecar: base_url, and headers per call."""

import gocardless_pro
import requests
from gocardless_pro import errors

from scenes import KEY, App, Paid, main


class GoCardless(App):
    gateway = "gocardless"
    errors = (errors.GoCardlessProError, requests.RequestException)
    states = {"ok": "pending", "slow": "pending"}  # a direct debit is under way for days
    final = False  # a mandate that is inactive may be active when the call is asked for again

    def __init__(self, address, token=""):
        self.sdk = gocardless_pro.Client(access_token=KEY, base_url=address, timeout=30)

    def pay(self, amount, headers, how=""):
        if how == "decline":
            headers = {**headers, "Sandbox-Fault": "decline"}  # as if the mandate had been cancelled
        params = {"amount": amount, "currency": "GBP", "links": {"mandate": "MD00EXAMPLE"}}
        return self.read(self.sdk.payments.create(params=params, headers=headers))

    def show(self, paid):
        return self.read(self.sdk.payments.get(paid.id))

    def read(self, payment):
        return Paid(payment.id, "paid" if payment.status in ("confirmed", "paid_out") else "pending")

    def code(self, err):
        details = err.errors if isinstance(err, errors.ApiError) else None
        return details[0].get("reason") if details else None

    def status(self, err):
        # An ApiError shows the error's own code, not the status; code is 409 in every refusal of the sidecar.
        return err.code if isinstance(err, errors.ApiError) and not (self.code(err) or "").startswith("fence_") else None

    def declines(self, err):
        return isinstance(err, errors.InvalidStateError) and self.code(err) == "mandate_is_inactive"


main(GoCardless)
