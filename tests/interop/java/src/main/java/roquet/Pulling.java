package roquet;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A pull consumer: single questions, each answered. */
@SuppressWarnings("deprecation")
final class Pulling implements Stage.Actor {
    private final DefaultMQPullConsumer consumer;

    Pulling(Words words) throws Exception {
        consumer = new DefaultMQPullConsumer(words.text("group"));
        Stage.configure(consumer, words);
        consumer.setBrokerSuspendMaxTimeMillis(words.number("hold", 20_000));
        consumer.start();
    }

    @Override
    public Object act(Words words) throws Exception {
        switch (words.verb) {
            case "take":
                return take(words);
            case "bounds":
                return bounds(queue(words));
            case "search":
                return consumer.searchOffset(queue(words), words.number("timestamp", 0L));
            case "commit":
                consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                    .updateConsumeOffsetToBroker(queue(words), words.number("offset", 0L), words.is("oneway"));
                return null;
            case "committed":
                return consumer.fetchConsumeOffset(queue(words), true);
            case "view":
                return Driver.describe(consumer.viewMessage(words.text("topic"), words.text("id")));
            case "query":
                return query(words);
            case "sendBack":
                return sendBack(words);
            default:
                throw new IllegalArgumentException(words.verb);
        }
    }

    private static MessageQueue queue(Words words) {
        return new MessageQueue(words.text("topic"), words.text("broker"), words.number("queue", 0));
    }

    private Map<String, Object> take(Words words) throws Exception {
        MessageQueue queue = queue(words);
        long offset = words.number("offset", 0L);
        int most = words.number("most", 32);
        PullResult result;
        if (words.has("sql")) {
            result = consumer.pull(queue, MessageSelector.bySql(words.text("sql")), offset, most);
        } else if (words.is("wait")) {
            result = consumer.pullBlockIfNotFound(queue, words.text("tags", "*"), offset, most);
        } else {
            result = consumer.pull(queue, words.text("tags", "*"), offset, most);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getPullStatus().name());
        line.put("next", result.getNextBeginOffset());
        line.put("min", result.getMinOffset());
        line.put("max", result.getMaxOffset());
        line.put("messages", described(result.getMsgFoundList()));
        return line;
    }

    private Map<String, Object> bounds(MessageQueue queue) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("min", consumer.minOffset(queue));
        line.put("max", consumer.maxOffset(queue));
        line.put("earliest", consumer.earliestMsgStoreTime(queue));
        return line;
    }

    private List<Object> query(Words words) throws Exception {
        QueryResult found = consumer.queryMessage(
            words.text("topic"), words.text("key"), words.number("most", 32), words.number("begin", 0L),
            words.number("end", Long.MAX_VALUE));
        return described(found.getMessageList());
    }

    private Object sendBack(Words words) throws Exception {
        MessageExt message = consumer.viewMessage(words.text("topic"), words.text("id"));
        consumer.sendMessageBack(message, words.number("level", 0), words.text("broker"), words.text("group"));
        return null;
    }

    static List<Object> described(List<MessageExt> messages) {
        List<Object> lines = new ArrayList<>();
        if (messages != null) {
            messages.forEach(message -> lines.add(Driver.describe(message)));
        }
        return lines;
    }

    @Override
    public void stop() {
        consumer.shutdown();
    }
}
