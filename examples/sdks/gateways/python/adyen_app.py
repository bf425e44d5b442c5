"""Adyen's Python SDK through the sidecar: no option sets the address, but each service keeps its own in baseUrl; headers go with
the call."""

import Adyen
import requests
from Adyen.exceptions import AdyenError

from scenes import KEY, App, Paid, main


class AdyenCheckout(App):
    gateway = "adyen"
    errors = (AdyenError, requests.RequestException)
    stored = True  # an error is the key's answer, and no payment can be looked up
    shows = False
    hooked = True

    def __init__(self, address, token=""):
        sdk = Adyen.Adyen(xapikey=KEY, platform="test", http_timeout=30)
        self.payments = sdk.checkout.payments_api
        self.payments.baseUrl = address + "/v72"

    def pay(self, amount, headers, how=""):
        body = {
            "merchantAccount": "ShopECOM",
            "amount": {"value": amount, "currency": "EUR"},
            "returnUrl": "https://shop.example/return",
            "paymentMethod": {"type": "sepadirectdebit" if how == "slow" else "scheme"},
        }
        if how == "decline":
            body["additionalData"] = {"RequestedTestAcquirerResponseCode": "2"}
        if "Fence-Key" not in headers:
            body["reference"] = f"order-{amount}"  # the sidecar writes one of its own
        got = self.payments.payments(body, header_parameters=dict(headers)).message
        states = {"Authorised": "paid", "Received": "pending", "Refused": "declined"}
        return Paid(got["pspReference"], states.get(got["resultCode"], got["resultCode"]))

    def code(self, err):
        return err.error_code if isinstance(err, AdyenError) else None

    def status(self, err):
        return err.status_code if isinstance(err, AdyenError) else None


main(AdyenCheckout)
