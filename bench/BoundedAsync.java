import java.util.Map;
import org.apache.rocketmq.client.impl.MQClientManager;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl;
import org.apache.rocketmq.client.impl.producer.MQProducerInner;

/**
 * Runs a class that sends asynchronously with the client's own limit on what is under way, which no argument turns on.
 *
 * Without it such a class, once it is three seconds behind, times out whatever it sends, and stays behind.
 */
public final class BoundedAsync {
    private static final String GROUP = "benchmark_producer";

    public static void main(String[] args) throws Exception {
        Thread limiter = new Thread(BoundedAsync::limit);
        limiter.setDaemon(true);
        limiter.start();
        String[] rest = java.util.Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    /** As soon as the producer is there. */
    private static void limit() {
        try {
            var clients = MQClientManager.class.getDeclaredField("factoryTable");
            clients.setAccessible(true);
            var table = (Map<?, ?>) clients.get(MQClientManager.getInstance());
            while (true) {
                for (Object client : table.values()) {
                    MQProducerInner producer = ((MQClientInstance) client).selectProducer(GROUP);
                    if (producer != null) {
                        ((DefaultMQProducerImpl) producer).getDefaultMQProducer().setEnableBackpressureForAsyncMode(true);
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
