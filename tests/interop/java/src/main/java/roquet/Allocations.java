package roquet;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What Apache's strategies give a member: a line of standard input is answered by a line.
 *
 * <p>{@code STRATEGY<tab>ME<tab>MEMBERS<tab>QUEUES} is answered by the strategy's name, a tab and the member's queues;
 * or by {@code !} and the name of the exception. Members are joined by commas, so are queues; a queue is
 * {@code topic/broker/id}. Strategies are AVG, CIRCLE, {@code HASH:virtual nodes}, {@code CONFIG:queues},
 * {@code ROOM:rooms}, {@code NEARBY:STRATEGY}; the room of a broker or member is its name up to a dot. All parts are
 * URL-encoded.
 */
public final class Allocations {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            OUT.println(answer(line.split("\t", -1)));
        }
    }

    private static String answer(String[] words) {
        try {
            AllocateMessageQueueStrategy strategy = strategy(words[0]);
            List<String> members = parts(words[2]);
            List<MessageQueue> queues = queues(words[3]);
            // As Apache's rebalance does before it asks a strategy.
            Collections.sort(members);
            Collections.sort(queues);
            List<MessageQueue> given = strategy.allocate("G", decoded(words[1]), queues, members);
            return strategy.getName() + "\t" + given.stream().map(Allocations::text).collect(Collectors.joining(","));
        } catch (RuntimeException refused) {
            return "!" + refused.getClass().getSimpleName();
        }
    }

    private static AllocateMessageQueueStrategy strategy(String word) {
        String[] sides = word.split(":", 2);
        switch (sides[0]) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(sides[1]));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(sides[1]));
                return config;
            case "ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(new HashSet<>(parts(sides[1])));
                return rooms;
            case "NEARBY":
                return new AllocateMachineRoomNearby(strategy(sides[1]), new AllocateMachineRoomNearby.MachineRoomResolver() {
                    @Override
                    public String brokerDeployIn(MessageQueue queue) {
                        return queue.getBrokerName().split("\\.", -1)[0];
                    }

                    @Override
                    public String consumerDeployIn(String member) {
                        return member.split("\\.", -1)[0];
                    }
                });
            default:
                throw new IllegalArgumentException(word);
        }
    }

    private static List<MessageQueue> queues(String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String queue : text.isEmpty() ? new String[0] : text.split(",")) {
            String[] parts = queue.split("/", -1);
            queues.add(new MessageQueue(decoded(parts[0]), decoded(parts[1]), Integer.parseInt(parts[2])));
        }
        return queues;
    }

    private static List<String> parts(String text) {
        List<String> parts = new ArrayList<>();
        for (String part : text.isEmpty() ? new String[0] : text.split(",", -1)) {
            parts.add(decoded(part));
        }
        return parts;
    }

    private static String text(MessageQueue queue) {
        return encoded(queue.getTopic()) + "/" + encoded(queue.getBrokerName()) + "/" + queue.getQueueId();
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }
}
