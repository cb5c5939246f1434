package roquet;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** A lite pull consumer: it subscribes where it is given `topics`, else queues are assigned to it. */
final class LitePulling implements Stage.Actor {
    private final DefaultLitePullConsumer consumer;

    LitePulling(Words words) throws Exception {
        consumer = new DefaultLitePullConsumer(words.text("group"));
        Stage.configure(consumer, words);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + words.text("from", "FIRST_OFFSET")));
        consumer.setAutoCommit(words.is("autoCommit"));
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.setPullThreadNums(2);
        consumer.setTopicMetadataCheckIntervalMillis(1000);
        if (words.has("sql")) {
            consumer.subscribe(words.text("topics"), MessageSelector.bySql(words.text("sql")));
        } else if (words.has("topics")) {
            consumer.subscribe(words.text("topics"), words.text("tags", "*"));
        }
        consumer.start();
    }

    @Override
    public Object act(Words words) throws Exception {
        switch (words.verb) {
            case "poll":
                return Pulling.described(consumer.poll(words.number("timeout", 1000L)));
            case "queues":
                return ids(consumer.fetchMessageQueues(words.text("topic")));
            case "assign":
                consumer.assign(consumer.fetchMessageQueues(words.text("topic")));
                return null;
            case "seek":
                consumer.seek(queue(words), words.number("offset", 0L));
                return null;
            case "seekToBegin":
                consumer.seekToBegin(queue(words));
                return null;
            case "seekToEnd":
                consumer.seekToEnd(queue(words));
                return null;
            case "pause":
                consumer.pause(consumer.fetchMessageQueues(words.text("topic")));
                return null;
            case "resume":
                consumer.resume(consumer.fetchMessageQueues(words.text("topic")));
                return null;
            case "commit":
                consumer.commitSync();
                return null;
            case "committed":
                return consumer.committed(queue(words));
            case "offsetForTimestamp":
                return consumer.offsetForTimestamp(queue(words), words.number("timestamp", 0L));
            default:
                throw new IllegalArgumentException(words.verb);
        }
    }

    private static MessageQueue queue(Words words) {
        return new MessageQueue(words.text("topic"), words.text("broker"), words.number("queue", 0));
    }

    private static List<Object> ids(Collection<MessageQueue> queues) {
        List<Object> ids = new ArrayList<>();
        queues.forEach(queue -> ids.add(queue.getQueueId()));
        return ids;
    }

    @Override
    public void stop() {
        consumer.shutdown();
    }
}
