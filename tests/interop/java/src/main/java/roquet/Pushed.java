package roquet;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer; each delivery is told of. */
final class Pushed implements Stage.Actor {
    private final String name;
    private final Words words;
    private final DefaultMQPushConsumer consumer;
    private final Map<String, Integer> deliveries = new ConcurrentHashMap<>();
    private final Set<String> refused;
    private DefaultMQProducer replies;

    Pushed(Words words) throws Exception {
        this.words = words;
        name = words.text("name");
        refused = new HashSet<>(Arrays.asList(words.text("refused", "").split(",")));
        consumer = new DefaultMQPushConsumer(
            words.text("group"), null, strategy(words.text("strategy", "AVG")), words.is("trace"), null);
        Stage.configure(consumer, words);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + words.text("from", "FIRST_OFFSET")));
        if (words.has("timestamp")) {
            consumer.setConsumeTimestamp(words.text("timestamp"));
        }
        Driver.setMessageModel(consumer, words.is("broadcast") ? "BROADCASTING" : "CLUSTERING");
        if (words.has("maxReconsume")) {
            consumer.setMaxReconsumeTimes(words.number("maxReconsume", 16));
        }
        consumer.setConsumeThreadMin(words.number("threads", 2));
        consumer.setConsumeThreadMax(words.number("threads", 2));
        consumer.setConsumeMessageBatchMaxSize(words.number("batch", 1));
        consumer.setPullBatchSize(words.number("pullBatch", 32));
        consumer.setPullThresholdForQueue(words.number("cache", 1000));
        consumer.setSuspendCurrentQueueTimeMillis(words.number("suspend", 100));
        if (words.has("replyGroup")) {
            replies = new DefaultMQProducer(words.text("replyGroup"));
            Stage.configure(replies, words);
            replies.start();
        }
        for (String topic : words.text("topics").split(",")) {
            subscribe(topic);
        }
        listen();
        consumer.start();
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                return new AllocateMessageQueueAveragely();
        }
    }

    private void subscribe(String topic) throws Exception {
        if (words.has("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(words.text("sql")));
        } else {
            consumer.subscribe(topic, words.text("tags", "*"));
        }
    }

    private void listen() {
        if (words.is("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) this::consumeOrderly);
            return;
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(words.number("level", 0));
            if (accepts(messages)) {
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
            switch (words.text("refusal", "later")) {
                case "throw":
                    throw new IllegalStateException("refused");
                case "null":
                    return null;
                default:
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
        });
    }

    @SuppressWarnings("deprecation")
    private ConsumeOrderlyStatus consumeOrderly(List<MessageExt> messages, ConsumeOrderlyContext context) {
        boolean accepted = accepts(messages);
        if (words.is("manual")) {
            context.setAutoCommit(false);
            return accepted ? ConsumeOrderlyStatus.COMMIT : ConsumeOrderlyStatus.ROLLBACK;
        }
        return accepted ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
    }

    /** False while a message is within its first `fail` deliveries, or its body is one of the `refused`. */
    private boolean accepts(List<MessageExt> messages) {
        boolean accepted = true;
        for (MessageExt message : messages) {
            int delivery = deliveries.merge(message.getMsgId(), 1, Integer::sum);
            String body = message.getBody() == null ? "" : new String(message.getBody(), StandardCharsets.UTF_8);
            Map<String, Object> line = Driver.describe(message);
            line.put("delivery", delivery);
            line.put("together", messages.size());
            line.put("at", System.currentTimeMillis());
            Stage.tell(name, "message", line);
            accepted &= delivery > words.number("fail", 0) && !refused.contains(body);
            if (replies != null) {
                reply(message, body);
            }
        }
        try {
            TimeUnit.MILLISECONDS.sleep(words.number("pause", 0));
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
        return accepted;
    }

    private void reply(MessageExt request, String body) {
        Map<String, Object> line;
        try {
            Message answer = MessageUtil.createReplyMessage(request, body.toUpperCase().getBytes(StandardCharsets.UTF_8));
            line = Driver.describe(replies.send(answer, 10_000));
        } catch (Exception failure) {
            line = new LinkedHashMap<>();
            line.put("error", failure.getClass().getSimpleName());
            line.put("code", Driver.responseCode(failure));
            line.put("message", String.valueOf(failure.getMessage()));
        }
        Stage.tell(name, "reply", line);
    }

    @Override
    public Object act(Words told) throws Exception {
        switch (told.verb) {
            case "assigned":
                return assigned(told.text("topic"));
            case "id":
                return consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
            case "subscribe":
                consumer.subscribe(told.text("topic"), told.text("tags", "*"));
                return null;
            case "unsubscribe":
                consumer.unsubscribe(told.text("topic"));
                return null;
            case "suspend":
                consumer.suspend();
                return null;
            case "resume":
                consumer.resume();
                return null;
            case "persist":
                consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
                return null;
            default:
                throw new IllegalArgumentException(told.verb);
        }
    }

    private List<Object> assigned(String topic) {
        List<Object> queues = new ArrayList<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                queues.add(queue.getQueueId());
            }
        }
        return queues;
    }

    @Override
    public void stop() {
        consumer.shutdown();
        if (replies != null) {
            replies.shutdown();
        }
    }
}
