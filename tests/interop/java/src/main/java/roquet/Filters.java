package roquet;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.util.BloomFilter;

/**
 * What Apache's own filters say: a line of standard input is a message's properties or an expression, and is answered
 * by a line.
 *
 * <p>{@code P<tab>a=1&b=x} adds a message and is answered by itself; {@code C} forgets all messages. {@code E<tab>text}
 * is answered by one letter for each message so far, a tab and the text: true, false, null, or x where it throws; or by
 * {@code -} where the text does not compile. {@code B<tab>percent<tab>groups<tab>text} is answered by itself, the number
 * of bits of such a Bloom filter and those of the text. Names, values and text are URL-encoded.
 */
public final class Filters {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final List<Map<String, String>> MESSAGES = new ArrayList<>();

    public static void main(String[] args) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            OUT.println(answer(line));
        }
    }

    private static String answer(String line) {
        String text = line.substring(Math.min(2, line.length()));
        switch (line.charAt(0)) {
            case 'P':
                MESSAGES.add(properties(text));
                return line;
            case 'C':
                MESSAGES.clear();
                return line;
            case 'B':
                return line + "\t" + positions(text.split("\t"));
            default:
                return verdicts(URLDecoder.decode(text, StandardCharsets.UTF_8)) + "\t" + text;
        }
    }

    private static String positions(String[] words) {
        BloomFilter filter = BloomFilter.createByFn(Integer.parseInt(words[0]), Integer.parseInt(words[1]));
        int[] positions = filter.calcBitPositions(URLDecoder.decode(words[2], StandardCharsets.UTF_8));
        return filter.getM() + "\t" + Arrays.toString(positions);
    }

    private static Map<String, String> properties(String text) {
        Map<String, String> properties = new HashMap<>();
        for (String pair : text.split("&")) {
            String[] sides = pair.split("=", -1);
            if (sides.length == 2) {
                properties.put(
                    URLDecoder.decode(sides[0], StandardCharsets.UTF_8),
                    URLDecoder.decode(sides[1], StandardCharsets.UTF_8));
            }
        }
        return properties;
    }

    private static String verdicts(String text) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable refused) {
            return "-";
        }
        StringBuilder verdicts = new StringBuilder();
        for (Map<String, String> message : MESSAGES) {
            verdicts.append(verdict(expression, message));
        }
        return verdicts.toString();
    }

    private static char verdict(Expression expression, Map<String, String> message) {
        try {
            Object truth = expression.evaluate(new MessageEvaluationContext(message));
            return truth == null ? 'n' : (Boolean) truth ? 't' : 'f';
        } catch (Throwable thrown) {
            return 'x';
        }
    }
}
