package roquet;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The admin client, any method of it by name, and mqadmin's commands. */
final class Admin implements Stage.Actor {
    private static final Object PRINTING = new Object();

    private final String namesrv;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);

    Admin(Words words) throws Exception {
        namesrv = words.text("namesrv");
        admin.setAdminExtGroup("admin-" + words.text("name"));
        admin.setInstanceName(words.text("name"));
        Stage.configure((ClientConfig) admin, words);
        admin.start();
    }

    @Override
    public Object act(Words words) throws Exception {
        return words.verb.equals("command") ? command(words.arguments()) : call(words.text("method"), words.arguments());
    }

    /** Releases keep what the methods take and give in different packages, so none is named here. */
    private Object call(String name, List<String> arguments) throws Exception {
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (method.getName().equals(name) && fits(method.getParameterTypes(), arguments)) {
                Object[] values = new Object[arguments.size()];
                for (int i = 0; i < values.length; i++) {
                    values[i] = value(method.getParameterTypes()[i], arguments.get(i));
                }
                Object result = method.invoke(admin, values);
                return result == null ? null : RemotingSerializable.toJson(result, false);
            }
        }
        throw new IllegalArgumentException("no method " + name + " for " + arguments);
    }

    private static boolean fits(Class<?>[] types, List<String> arguments) {
        if (types.length != arguments.size()) {
            return false;
        }
        for (int i = 0; i < types.length; i++) {
            if (types[i] != String.class && types[i] != boolean.class && types[i] != long.class
                && types[i] != int.class && types[i] != Set.class
                || types[i] == boolean.class != arguments.get(i).matches("true|false")
                || (types[i] == long.class || types[i] == int.class) && !arguments.get(i).matches("-?[0-9]+")) {
                return false;
            }
        }
        return true;
    }

    private static Object value(Class<?> type, String text) {
        if (type == boolean.class) {
            return Boolean.parseBoolean(text);
        }
        if (type == long.class) {
            return Long.parseLong(text);
        }
        if (type == int.class) {
            return Integer.parseInt(text);
        }
        return type == Set.class ? new HashSet<>(List.of(text.split(","))) : text;
    }

    /** What mqadmin printed; it tells of a failure in `err` only. */
    private Map<String, Object> command(List<String> command) {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        synchronized (PRINTING) {
            PrintStream out = System.out;
            PrintStream err = System.err;
            System.setProperty("rocketmq.namesrv.addr", namesrv);
            System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            try {
                MQAdminStartup.main0(command.toArray(new String[0]), null);
            } finally {
                System.clearProperty("rocketmq.namesrv.addr");
                System.setOut(out);
                System.setErr(err);
            }
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("out", said.toString(StandardCharsets.UTF_8));
        line.put("err", complained.toString(StandardCharsets.UTF_8));
        return line;
    }

    @Override
    public void stop() {
        admin.shutdown();
    }
}
