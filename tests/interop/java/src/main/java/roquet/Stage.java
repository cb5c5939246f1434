package roquet;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.ClientConfig;

/**
 * Many clients in one process, each under a name, told what to do from standard input.
 *
 * A command is a line, and each runs in a thread of its own: scenarios that wait do so beside each other. Its answer is a
 * line with its id. What clients do by themselves (a delivery, a check of a transaction) is a line with the client's name.
 */
public final class Stage {
    /** What a client can be told; null stands for an answer without a value. */
    interface Actor {
        Object act(Words words) throws Exception;

        void stop() throws Exception;
    }

    private static final PrintStream ERRORS = System.err;

    private final Map<String, Actor> actors = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Stage stage = new Stage();
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver.note("started");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Words words = new Words(line);
            threads.execute(() -> stage.answer(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private void answer(Words words) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("id", words.id);
        try {
            line.put("answer", obey(words));
        } catch (Throwable thrown) {
            Throwable failure = thrown instanceof InvocationTargetException ? thrown.getCause() : thrown;
            failure.printStackTrace(ERRORS);
            line.put("error", failure.getClass().getSimpleName());
            line.put("code", Driver.responseCode(failure));
            line.put("message", String.valueOf(failure.getMessage()));
        }
        Driver.print(line);
    }

    private Object obey(Words words) throws Exception {
        switch (words.verb) {
            case "producer":
                return enter(words, new Producing(words));
            case "push":
                return enter(words, new Pushed(words));
            case "pull":
                return enter(words, new Pulling(words));
            case "lite":
                return enter(words, new LitePulling(words));
            case "admin":
                return enter(words, new Admin(words));
            case "stop":
                Actor actor = actors.remove(words.text("name"));
                if (actor != null) {
                    actor.stop();
                }
                return null;
            default:
                return actors.get(words.text("name")).act(words);
        }
    }

    private Object enter(Words words, Actor actor) {
        actors.put(words.text("name"), actor);
        return null;
    }

    /** What every client is told of its surroundings; it looks at routes and persists offsets often. */
    static void configure(ClientConfig client, Words words) {
        client.setNamesrvAddr(words.text("namesrv"));
        client.setPollNameServerInterval(words.number("poll", 500));
        client.setHeartbeatBrokerInterval(words.number("heartbeat", 1000));
        client.setPersistConsumerOffsetInterval(words.number("persist", 500));
        client.setMqClientApiTimeout(20_000);
        client.setVipChannelEnabled(words.is("vip"));
        if (words.has("instance")) {
            client.setInstanceName(words.text("instance"));
        }
        if (words.has("namespace")) {
            client.setNamespace(words.text("namespace"));
        }
    }

    /** Tells of what a client did by itself. */
    static void tell(String name, String what, Map<String, Object> line) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("from", name);
        told.put("event", what);
        told.putAll(line);
        Driver.print(told);
    }
}
