import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.concurrent.atomic.AtomicInteger;

/** An application under check: does what its standard input says, one line each, and answers each with one line. */
final class App {
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private static final AtomicInteger told = new AtomicInteger();
    private static Keeper keeper;

    public static void main(String[] args) throws Exception {
        var in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            try {
                System.out.println(act(line.split(" ")));
            } catch (Keeper.Refused e) {
                System.out.println("refused " + e.slug);
            } catch (Exception e) {
                System.out.println("error " + e);
            }
        }
    }

    private static Object act(String[] words) throws Exception {
        switch (words[0]) {
            case "acquire":
                told.set(0);
                keeper = new Keeper(System.getenv("LEASES"), words[1], told::incrementAndGet);
                return keeper.token();
            case "charge": return charge(words[1], words[2]);
            case "release": keeper.release(); return "done";
            case "finish": keeper.finish(); return "done";
            case "held": return keeper.held();
            case "lost": return keeper.lost() && told.get() == 1;
            case "cancelled": return keeper.cancelled();
            default: throw new IllegalArgumentException(words[0]);
        }
    }

    private static String charge(String key, String amount) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(System.getenv("PAY") + "/v1/payment_intents"))
            .header("Authorization", "Bearer " + System.getenv("STRIPE_KEY")).header("Content-Type", "application/x-www-form-urlencoded")
            .header("Fence-Key", key).header("Fence-Token", keeper.token())
            .POST(HttpRequest.BodyPublishers.ofString("amount=" + amount + "&currency=eur&confirm=true&payment_method=pm_card_visa"));
        var answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
        String fenced = answer.body().contains("/problems/fenced") ? "fenced" : "";
        return (answer.statusCode() + " " + answer.headers().firstValue("Fence-Lease").orElse("null") + " " + fenced).trim();
    }
}
