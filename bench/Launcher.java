import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Map;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl;

/**
 * Runs a benchmark class with settings of the client that no argument of the class reaches.
 *
 * {@code java Launcher.java [--json] [--limit] CLASS [ARGUMENT]...}
 *
 * <ul>
 * <li>--json: JSON headers. The classes ask for binary ones, but the client reads that choice only once: here.
 * <li>--limit: the client's own limit on asynchronous sends under way. Without it a class that is once behind by
 * the timeout of its sends times out whatever it sends from then on, and stays behind.
 * </ul>
 */
public final class Launcher {
    private static final String GROUP = "benchmark_producer";
    private static final String HEADERS = "rocketmq.serialize.type";

    public static void main(String[] args) throws Exception {
        Deque<String> rest = new ArrayDeque<>(Arrays.asList(args));
        while (rest.getFirst().startsWith("--")) {
            switch (rest.removeFirst()) {
                case "--json" -> Class.forName("org.apache.rocketmq.remoting.protocol.RemotingCommand");
                case "--limit" -> startLimiter();
                default -> throw new IllegalArgumentException(String.join(" ", args));
            }
        }
        Class<?> benchmark = Class.forName(rest.removeFirst());
        benchmark.getMethod("main", String[].class).invoke(null, (Object) rest.toArray(new String[0]));
    }

    private static void startLimiter() {
        Thread limiter = new Thread(Launcher::limit);
        limiter.setDaemon(true);
        limiter.start();
    }

    /** As soon as the producer is there; a moment later would be too late. */
    private static void limit() {
        try {
            while (System.getProperty(HEADERS) == null) { // Nothing of the client may be loaded before it is set.
                Thread.sleep(1);
            }
            var clients = MQClientManager.class.getDeclaredField("factoryTable");
            clients.setAccessible(true);
            var table = (Map<?, ?>) clients.get(MQClientManager.getInstance());
            while (true) {
                for (Object client : table.values()) {
                    if (((MQClientInstance) client).selectProducer(GROUP) instanceof DefaultMQProducerImpl producer) {
                        producer.getDefaultMQProducer().setEnableBackpressureForAsyncMode(true);
                        return;
                    }
                }
                Thread.sleep(1);
            }
        } catch (ReflectiveOperationException | InterruptedException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }
}
