package roquet;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** One command of a stage: an id, a verb, and named values; their text is percent-encoded. */
final class Words {
    final String id;
    final String verb;
    private final Map<String, String> values = new LinkedHashMap<>();

    Words(String line) {
        String[] parts = line.split("\t");
        id = parts[0];
        verb = parts[1];
        for (int i = 2; i < parts.length; i++) {
            String[] pair = parts[i].split("=", 2);
            values.put(pair[0], URLDecoder.decode(pair[1], StandardCharsets.UTF_8));
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException(verb + " needs " + name);
        }
        return values.get(name);
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(values.get(name)) : otherwise;
    }

    long number(String name, long otherwise) {
        return has(name) ? Long.parseLong(values.get(name)) : otherwise;
    }

    boolean is(String name) {
        return Boolean.parseBoolean(text(name, "false"));
    }

    /** The values of arg0, arg1 and so on. */
    List<String> arguments() {
        List<String> found = new ArrayList<>();
        while (has("arg" + found.size())) {
            found.add(values.get("arg" + found.size()));
        }
        return found;
    }

    /** The values whose names begin so, by the rest of the name. */
    Map<String, String> named(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        values.forEach((name, value) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), value);
            }
        });
        return found;
    }
}
