package roquet;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The work of bench/client.py with Apache's Java client: {@code NAME_SERVER TOPIC WAY UNDER_WAY}; the ways and the
 * words on standard input are those of bench/client_loads.py.
 */
public final class ClientLoad {
    private static final long BEGAN = System.nanoTime();
    private static final byte[] BODY = new byte[1024];
    private static final AtomicInteger FAILED = new AtomicInteger();
    private static final AtomicLong FIRST = new AtomicLong();
    private static String names;
    private static String topic;
    private static String way;
    private static int underWay;

    public static void main(String[] args) throws Exception {
        Arrays.fill(BODY, (byte) 'x');
        names = args[0];
        topic = args[1];
        way = args[2];
        underWay = Integer.parseInt(args[3]);
        var words = new BufferedReader(new InputStreamReader(System.in));
        if (way.equals("consume")) {
            consumeAll(words);
            return;
        }
        DefaultMQProducer producer = new DefaultMQProducer("bench-java");
        producer.setNamesrvAddr(names);
        producer.start();
        for (String line; (line = words.readLine()) != null; ) {
            String[] word = line.split(" ");
            long begin = System.nanoTime();
            int sent;
            if (word[0].equals("count")) {
                AtomicInteger left = new AtomicInteger(Integer.parseInt(word[1]));
                sent = send(producer, () -> left.getAndDecrement() > 0);
            } else {
                long until = begin + (long) (Double.parseDouble(word[1]) * 1e9);
                sent = send(producer, () -> System.nanoTime() < until);
            }
            say(sent, begin);
        }
        producer.shutdown();
    }

    private static int send(DefaultMQProducer producer, BooleanSupplier goesOn) throws Exception {
        switch (way) {
            case "async":
                return sendAsync(producer, goesOn);
            case "batch":
                return sendBatches(producer, goesOn);
            default:
                return sendWaiting(producer, goesOn);
        }
    }

    private static int sendWaiting(DefaultMQProducer producer, BooleanSupplier goesOn) throws Exception {
        AtomicInteger sent = new AtomicInteger();
        Runnable one = () -> {
            int mine = 0;
            while (goesOn.getAsBoolean()) {
                try {
                    producer.send(new Message(topic, BODY));
                    noteFirst();
                    mine++;
                } catch (Exception error) {
                    fail(error);
                }
            }
            sent.addAndGet(mine);
        };
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < underWay; i++) {
            threads.add(new Thread(one));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        return sent.get();
    }

    private static int sendAsync(DefaultMQProducer producer, BooleanSupplier goesOn) throws Exception {
        Semaphore free = new Semaphore(underWay);
        AtomicInteger sent = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                noteFirst();
                sent.incrementAndGet();
                free.release();
            }

            @Override
            public void onException(Throwable error) {
                fail(error);
                free.release();
            }
        };
        while (goesOn.getAsBoolean()) {
            free.acquire();
            producer.send(new Message(topic, BODY), callback);
        }
        free.acquire(underWay);
        return sent.get();
    }

    private static int sendBatches(DefaultMQProducer producer, BooleanSupplier goesOn) throws Exception {
        int sent = 0;
        while (goesOn.getAsBoolean()) {
            List<Message> messages = new ArrayList<>(underWay);
            for (int i = 0; i < underWay; i++) {
                messages.add(new Message(topic, BODY));
            }
            try {
                producer.send(messages);
                noteFirst();
                sent += underWay;
            } catch (Exception error) {
                fail(error);
            }
        }
        return sent;
    }

    private static void consumeAll(BufferedReader words) throws Exception {
        String run = "bench-java-" + ProcessHandle.current().pid() + "-";
        int number = 0;
        for (String line; (line = words.readLine()) != null; ) {
            int count = Integer.parseInt(line.split(" ")[1]);
            CountDownLatch left = new CountDownLatch(count);
            AtomicLong size = new AtomicLong();
            long begin = System.nanoTime();
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(run + number++);
            consumer.setNamesrvAddr(names);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeMessageBatchMaxSize(underWay);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt message : messages) {
                    size.addAndGet(message.getBody().length);
                    left.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            left.await();
            if (size.get() < (long) count * BODY.length) {
                throw new IllegalStateException(size + " bytes");
            }
            say(count, begin);
            consumer.shutdown();
        }
    }

    private static void noteFirst() {
        if (FIRST.get() == 0) {
            FIRST.compareAndSet(0, System.nanoTime());
        }
    }

    private static void fail(Throwable error) {
        if (FAILED.getAndIncrement() == 0) {
            error.printStackTrace();
        }
    }

    private static void say(int messages, long begin) {
        double seconds = (System.nanoTime() - begin) / 1e9;
        double firstMs = FIRST.get() == 0 ? 0 : (FIRST.get() - BEGAN) / 1e6;
        System.out.println(
            messages + " " + seconds + " " + FAILED.getAndSet(0) + " " + firstMs);
    }
}
