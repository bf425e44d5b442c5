"""PayPal's Python SDK through the sidecar: its table of environments replaced in one Configuration, and a call-back that adds the
call's headers, since no operation takes any."""

import json
import uuid
from contextvars import ContextVar

import requests
from paypalserversdk.configuration import Configuration, Environment, Server
from paypalserversdk.exceptions.api_exception import ApiException
from paypalserversdk.exceptions.error_exception import ErrorException
from paypalserversdk.http.auth.o_auth_2 import ClientCredentialsAuthCredentials
from paypalserversdk.http.http_call_back import HttpCallBack
from paypalserversdk.models.o_auth_token import OAuthToken
from paypalserversdk.paypal_serversdk_client import PaypalServersdkClient

from scenes import KEY, App, Paid, main

call = ContextVar("call", default={})  # headers of the call that is under way


class Headers(HttpCallBack):
    def on_before_request(self, request):
        if not request.query_url.endswith("/oauth2/token"):  # the SDK may fetch a token first, which is no part of the call
            for name, value in call.get().items():
                request.add_header(name, value)

    def on_after_response(self, response):
        pass


def client(client_id, secret, address, token=""):
    config = Configuration(
        client_credentials_auth_credentials=ClientCredentialsAuthCredentials(
            client_id, secret, o_auth_token=OAuthToken(token, "Bearer") if token else None),
        http_call_back=Headers(), timeout=30,
    )
    config.environments = {Environment.SANDBOX: {Server.DEFAULT: address}}
    return PaypalServersdkClient(config=config)


class PayPal(App):
    gateway = "paypal"
    errors = (ApiException, requests.RequestException)
    states = {"slow": "pending"}

    def __init__(self, address, token=""):
        self.sdk = client("shop", KEY, address, token)

    def pay(self, amount, headers, how=""):
        # A minimal answer does not show what became of the payment.
        options = {"prefer": "return=representation", "body": {
            "intent": "CAPTURE",
            "purchase_units": [{"amount": {"currency_code": "EUR", "value": f"{amount // 100}.{amount % 100:02}"}}],
            "payment_source": {"card": {"name": "J Doe", "vault_id": "example"}},
        }}
        if how == "decline":
            options["paypal_mock_response"] = json.dumps({"mock_application_codes": "INSTRUMENT_DECLINED"})
        if "Fence-Key" not in headers:
            options["paypal_request_id"] = str(uuid.uuid4())  # the sidecar makes a lasting one
        if how == "slow":
            headers = {**headers, "Sandbox-Fault": "processing"}
        mark = call.set(headers)
        try:
            return self.read(self.sdk.orders.create_order(options).body)
        finally:
            call.reset(mark)

    def show(self, paid):
        return self.read(self.sdk.orders.get_order({"id": paid.id}).body)

    def read(self, order):
        capture = order.purchase_units[0].payments.captures[0]
        return Paid(order.id, {"COMPLETED": "paid", "PENDING": "pending"}.get(capture.status, capture.status), capture.id)

    def code(self, err):
        details = getattr(err, "details", None) if isinstance(err, ErrorException) else None
        return details[0].issue if details else None

    def status(self, err):
        return err.response_code if isinstance(err, ApiException) else None

    def declines(self, err):
        return self.code(err) == "INSTRUMENT_DECLINED"


main(PayPal)
