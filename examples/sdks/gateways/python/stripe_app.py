"""Stripe's Python SDK through the sidecar: base_addresses, and headers per call. ../../python/fence.py is the example to copy."""

import stripe

from scenes import KEY, App, Paid, main


class Stripe(App):
    gateway = "stripe"
    errors = (stripe.StripeError,)
    states = {"slow": "pending"}

    def __init__(self, address, token=""):
        self.sdk = stripe.StripeClient(
            KEY, base_addresses={"api": address}, max_network_retries=2, http_client=stripe.RequestsClient(timeout=30))

    def pay(self, amount, headers, how=""):
        cards = {"decline": "pm_card_chargeDeclined", "slow": "pm_usBankAccount_processing"}
        params = {"amount": amount, "currency": "eur", "confirm": True, "payment_method": cards.get(how, "pm_card_visa")}
        return self.read(self.sdk.v1.payment_intents.create(params, {"headers": headers}))

    def show(self, paid):
        return self.read(self.sdk.v1.payment_intents.retrieve(paid.id))

    def read(self, intent):
        return Paid(intent.id, {"succeeded": "paid", "processing": "pending"}.get(intent.status, intent.status))

    def code(self, err):
        return err.error.code if err.error else None

    def status(self, err):
        return err.http_status

    def declines(self, err):
        return isinstance(err, stripe.CardError)


main(Stripe)
