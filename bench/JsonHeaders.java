/**
 * Runs a class whose `main` asks for binary headers with JSON headers: the client reads that choice only once, here.
 */
public final class JsonHeaders {
    public static void main(String[] args) throws Exception {
        Class.forName("org.apache.rocketmq.remoting.protocol.RemotingCommand");
        String[] rest = java.util.Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    }
}
