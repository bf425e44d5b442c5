import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.regex.Pattern;

/**
 * Keeps a lease while a piece of work is done. Copy it into your application; it needs Java 17 only.
 *
 * <p>The application asks held() right before each step, and puts token() on every call to a gateway, as Fence-Token. When the
 * lease is lost, or a call is answered fenced, it stops: another holder goes on with the work. It undoes nothing and repeats nothing.
 */
public final class Keeper {
    /** The sidecar's no: held, fenced, scope-finished, calls-in-flight … */
    @SuppressWarnings("serial")
    public static final class Refused extends IOException {
        public final String slug;
        public final long afterSeconds; // until a repeat makes sense

        Refused(String slug, long afterSeconds) {
            super(slug);
            this.slug = slug;
            this.afterSeconds = afterSeconds;
        }
    }

    private record Grant(long sent, long nanos, boolean cancelled) {} // by System.nanoTime

    private static final Pattern SLUG = Pattern.compile("/problems/([a-z-]+)");
    private static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private final String sidecar;
    private final Runnable onLost;
    private String token;
    private volatile Grant grant;
    private volatile boolean lost, ended;

    /** Takes a scope at a sidecar, http://127.0.0.1:8182 by default. onLost is run at once when the lease is lost. */
    public Keeper(String sidecar, String scope, Runnable onLost) throws IOException, InterruptedException {
        this.sidecar = sidecar;
        this.onLost = onLost;
        grant = ask("acquire", Duration.ofSeconds(10), "{\"id\":\"" + scope.replace("\\", "\\\\").replace("\"", "\\\"") + "\"}");
        Thread renewals = new Thread(this::renew, "lease " + scope);
        renewals.setDaemon(true);
        renewals.start();
    }

    public String token() { return token; }

    public boolean lost() { return lost; }

    public boolean cancelled() { return grant.cancelled; }

    /** Whether nobody else can have the scope. Once false, always false. */
    public boolean held() { return trustedForNanos() > 0; }

    public long trustedForNanos() {
        Grant g = grant;
        return lost || ended ? 0 : Math.max(0, g.nanos - (System.nanoTime() - g.sent));
    }

    /** Gives the scope back. Refused with calls-in-flight while a call's outcome is open: the lease goes on, ask again. */
    public synchronized void release() throws IOException, InterruptedException {
        ask("release", Duration.ofSeconds(10), "");
        ended = true;
        notifyAll();
    }

    /** Like release, and the scope is never granted again: the work is done. */
    public synchronized void finish() throws IOException, InterruptedException {
        ask("finish", Duration.ofSeconds(10), "");
        ended = true;
        notifyAll();
    }

    /** One request, sent once. The clock is read before it leaves, because its answer may take long. */
    private Grant ask(String what, Duration timeout, String json) throws IOException, InterruptedException {
        var request = HttpRequest.newBuilder(URI.create(sidecar + "/v1/leases/" + what)).timeout(timeout)
            .POST(HttpRequest.BodyPublishers.ofString(json));
        if (!json.isEmpty()) request.header("Content-Type", "application/json");
        if (token != null) request.header("Fence-Token", token);
        long sent = System.nanoTime();
        var answer = HTTP.send(request.build(), HttpResponse.BodyHandlers.ofString());
        var facts = answer.headers();
        if (answer.statusCode() != 200) {
            var m = SLUG.matcher(answer.body());
            String slug = m.find() ? m.group(1) : answer.statusCode() + " " + answer.body();
            if (token != null && (slug.equals("fenced") || slug.equals("scope-finished"))) lose();
            throw new Refused(slug, facts.firstValueAsLong("Retry-After").orElse(0));
        }
        token = facts.firstValue("Fence-Token").orElseThrow();
        return new Grant(sent, facts.firstValueAsLong("Fence-Trusted-For-Ms").orElseThrow() * 1_000_000,
            facts.firstValue("Fence-Cancelled").orElse("").equals("true"));
    }

    /** Synchronized but for its waits: one request at a time, so that a renewal never meets its own release. */
    private synchronized void renew() {
        for (long pause = grant.nanos / 3; held();) {
            try {
                wait(1 + Math.min(pause, trustedForNanos()) / 1_000_000);
                pause = grant.nanos / 10; // sooner, after an error
                if (!held()) break;
                Grant next = ask("confirm", Duration.ofNanos(1 + Math.min(grant.nanos / 3, trustedForNanos())), "");
                if (!held()) break;
                grant = next;
                pause = grant.nanos / 3;
            } catch (IOException e) {
                // if it is not lost, it is trusted for as long as was granted
            } catch (InterruptedException e) {
                break;
            }
        }
        lose();
    }

    /** As a program: holds a scope until its input ends. */
    public static void main(String[] args) throws Exception {
        var keeper = new Keeper(args[0], args[1], () -> System.out.println("lost"));
        System.out.println(keeper.token());
        System.in.readAllBytes();
        keeper.release();
    }

    private void lose() {
        if (lost || ended) return;
        lost = true;
        onLost.run();
    }
}
