// Command goapp is an application under check: it does what its standard input says, one line each, and answers each with one
// line.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/examples/leases/gokeeper"
)

var keeper *gokeeper.Keeper

func main() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := act(context.Background(), strings.Fields(in.Text()))
		if r, ok := errors.AsType[*gokeeper.Refused](err); ok {
			answer = "refused " + r.Slug
		} else if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

func act(ctx context.Context, words []string) (answer string, err error) {
	switch words[0] {
	case "acquire":
		if keeper, err = gokeeper.Acquire(ctx, os.Getenv("LEASES"), words[1], "go"); err != nil {
			return "", err
		}
		return keeper.Token(), nil
	case "charge":
		return charge(ctx, words[1], words[2])
	case "release":
		return "done", keeper.Release(ctx)
	case "finish":
		return "done", keeper.Finish(ctx)
	case "held":
		return fmt.Sprint(keeper.Held()), nil
	case "cancelled":
		return fmt.Sprint(keeper.Cancelled()), nil
	case "lost":
		select {
		case <-keeper.Lost():
			return "true", nil
		default:
			return "false", nil
		}
	}
	return "", errors.New("no such command")
}

func charge(ctx context.Context, key, amount string) (string, error) {
	form := "amount=" + amount + "&currency=eur&confirm=true&payment_method=pm_card_visa"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("PAY")+"/v1/payment_intents", strings.NewReader(form))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + os.Getenv("STRIPE_KEY"), "Content-Type": "application/x-www-form-urlencoded",
		"Fence-Key": key, "Fence-Token": keeper.Token(),
	} {
		req.Header.Set(name, value)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	fenced := ""
	if strings.Contains(string(text), "/problems/fenced") {
		fenced = " fenced"
	}
	return fmt.Sprintf("%d %s%s", res.StatusCode, res.Header.Get("Fence-Lease"), fenced), err
}
