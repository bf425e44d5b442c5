"""Checkout.com's Python SDK through the sidecar: an Environment of its own, and a requests.Session that adds the call's headers,
since no operation takes any."""

import warnings
from contextvars import ContextVar

import requests
from checkout_sdk.checkout_sdk import CheckoutSdk
from checkout_sdk.environment import Environment
from checkout_sdk.exception import CheckoutApiException, CheckoutException
from checkout_sdk.http_client_interface import HttpClientBuilderInterface

from scenes import KEY, App, Paid, main

call = ContextVar("call", default={})  # headers of the call that is under way


class Session(requests.Session, HttpClientBuilderInterface):
    def get_client(self):
        return self

    def request(self, method, url, headers=None, **rest):
        return super().request(method, url, headers={**(headers or {}), **call.get()}, timeout=30, **rest)


def client(key, address):
    base = address + "/"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the address is the sidecar's: no prefix of ours stands before it
        return (
            CheckoutSdk.builder()
            .secret_key(key)
            .environment(Environment(base, base, base, base, base, base, base, is_sandbox=True))
            .use_legacy_domain()
            .http_client_builder(Session())
            .build()
        )


class Checkout(App):
    gateway = "checkout"
    errors = (CheckoutException, requests.RequestException)
    asks = False  # a key stands for 2xx answers only: nothing is sent again after a doubt
    steps = 2  # authorized, then captured

    def __init__(self, address, token=""):
        self.sdk = client(KEY, address)

    def pay(self, amount, headers, how=""):
        if how == "slow":
            headers = {**headers, "Sandbox-Fault": "processing"}
        mark = call.set(headers)
        try:
            # An amount that ends in 05 is declined. The reference is left to the sidecar.
            return self.read(self.sdk.payments.request_payment({
                "amount": amount, "currency": "EUR", "source": {"type": "token", "token": "tok_example"},
            }))
        finally:
            call.reset(mark)

    def show(self, paid):
        return self.read(self.sdk.payments.get_payment_details(paid.id))

    def read(self, payment):
        states = {"Authorized": "paid", "Captured": "paid", "Pending": "pending", "Declined": "declined"}
        return Paid(payment.id, states.get(payment.status, payment.status))

    def code(self, err):
        return err.error_type if isinstance(err, CheckoutApiException) else None

    def status(self, err):
        return err.http_metadata.status_code if isinstance(err, CheckoutApiException) else None


main(Checkout)
