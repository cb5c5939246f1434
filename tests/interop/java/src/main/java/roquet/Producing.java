package roquet;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A producer; with the value `check` one of transactions. */
final class Producing implements Stage.Actor {
    private final String name;
    private final DefaultMQProducer producer;

    Producing(Words words) throws Exception {
        name = words.text("name");
        boolean traced = words.is("trace");
        producer = words.has("check")
            ? new TransactionMQProducer(null, words.text("group"), null, traced, null)
            : new DefaultMQProducer(words.text("group"), null, traced, null);
        Stage.configure(producer, words);
        producer.setSendMsgTimeout(words.number("timeout", 10_000));
        producer.setRetryTimesWhenSendFailed(words.number("retry", 0));
        producer.setMaxMessageSize(words.number("maxSize", 4 * 1024 * 1024));
        producer.setCompressMsgBodyOverHowmuch(words.number("compressOver", 4096));
        producer.setCreateTopicKey(words.text("createTopicKey", "TBW102"));
        producer.setDefaultTopicQueueNums(words.number("defaultQueues", 4));
        if (words.has("check")) {
            ((TransactionMQProducer) producer).setTransactionListener(new Verdicts(words.text("check")));
        }
        producer.start();
    }

    @Override
    public Object act(Words words) throws Exception {
        switch (words.verb) {
            case "send":
                return send(words);
            case "transact":
                return transact(words);
            case "request":
                return request(words);
            default:
                throw new IllegalArgumentException(words.verb);
        }
    }

    @Override
    public void stop() {
        producer.shutdown();
    }

    /** A list of results; one-way sends have none. */
    private List<Object> send(Words words) throws Exception {
        List<Object> results = new ArrayList<>();
        MessageQueue queue = words.has("queue")
            ? new MessageQueue(words.text("topic"), words.text("broker"), words.number("queue", 0)) : null;
        List<Message> messages = messages(words);
        switch (words.text("way", "sync")) {
            case "sync":
                for (Message message : messages) {
                    results.add(Driver.describe(queue == null ? producer.send(message) : producer.send(message, queue)));
                }
                return results;
            case "batch":
                results.add(Driver.describe(queue == null ? producer.send(messages) : producer.send(messages, queue)));
                return results;
            case "async":
                return sendAsync(messages);
            case "oneway":
                for (Message message : messages) {
                    if (queue == null) {
                        producer.sendOneway(message);
                    } else {
                        producer.sendOneway(message, queue);
                    }
                }
                return results;
            case "ordered":
                for (int i = 0; i < messages.size(); i++) {
                    results.add(Driver.describe(producer.send(
                        messages.get(i), (queues, message, key) -> queues.get((Integer) key % queues.size()),
                        i % words.number("keysOfOrder", 1))));
                }
                return results;
            default:
                throw new IllegalArgumentException(words.text("way"));
        }
    }

    private List<Object> sendAsync(List<Message> messages) throws Exception {
        List<CompletableFuture<SendResult>> pending = new ArrayList<>();
        for (Message message : messages) {
            CompletableFuture<SendResult> result = new CompletableFuture<>();
            pending.add(result);
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult sent) {
                    result.complete(sent);
                }

                @Override
                public void onException(Throwable failure) {
                    result.completeExceptionally(failure);
                }
            });
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<SendResult> result : pending) {
            results.add(Driver.describe(result.get(60, TimeUnit.SECONDS)));
        }
        return results;
    }

    /** `local` is what the local branch answers. */
    private List<Object> transact(Words words) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Message message : messages(words)) {
            TransactionSendResult result = producer.sendMessageInTransaction(message, words.text("local"));
            Map<String, Object> line = Driver.describe(result);
            line.put("localState", String.valueOf(result.getLocalTransactionState()));
            results.add(line);
        }
        return results;
    }

    private Object request(Words words) throws Exception {
        Message reply = producer.request(messages(words).get(0), words.number("timeout", 10_000));
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("body", new String(reply.getBody(), StandardCharsets.UTF_8));
        line.put("properties", new TreeMap<>(reply.getProperties()));
        return line;
    }

    /** `count` of them; `{i}` in a text is the number of the message. */
    private static List<Message> messages(Words words) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < words.number("count", 1); i++) {
            messages.add(message(words, i));
        }
        return messages;
    }

    private static Message message(Words words, int i) {
        StringBuilder body = new StringBuilder(words.text("body", "message-{i}").replace("{i}", "" + i));
        for (int size = words.number("size", 0); body.length() < size;) {
            body.append((char) ('a' + body.length() % 26));
        }
        Message message = new Message(words.text("topic"), body.toString().getBytes(StandardCharsets.UTF_8));
        if (words.has("tags")) {
            String[] tags = words.text("tags").split(",");
            message.setTags(tags[i % tags.length]);
        }
        if (words.has("keys")) {
            message.setKeys(words.text("keys").replace("{i}", "" + i));
        }
        if (words.has("delay")) {
            message.setDelayTimeLevel(words.number("delay", 0));
        }
        if (words.has("wait")) {
            message.setWaitStoreMsgOK(words.is("wait"));
        }
        message.setFlag(words.number("flag", 0));
        words.named("user.").forEach((key, value) -> message.putUserProperty(key, value.replace("{i}", "" + i)));
        words.named("property.").forEach((key, value) -> MessageAccessor.putProperty(message, key, value));
        return message;
    }

    /** What branches and checks answer: checks in turn what was said at the start, the last of it for ever. */
    private final class Verdicts implements TransactionListener {
        private final String[] checks;
        private final Map<String, Integer> checked = new HashMap<>();

        Verdicts(String checks) {
            this.checks = checks.split(",");
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object local) {
            return Driver.verdict((String) local);
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            String key = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
            int times = checked.merge(key, 1, Integer::sum);
            Map<String, Object> line = Driver.describe(message);
            line.put("times", times);
            Stage.tell(name, "check", line);
            return Driver.verdict(checks[Math.min(times, checks.length) - 1]);
        }
    }
}
