package lockkeeper;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;

/**
 * Obeys orders on its standard input, and answers on its standard output.
 *
 * <p>An order is {@code <number> <actor> <verb> <arguments>}; its answer is {@code <number> ok <result>} or
 * {@code <number> failed <exception>: <message>}. Each actor is a thread of its own, which does its orders one after the
 * other. The program ends with its input.
 */
public final class Main {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final Map<String, Executor> actors = new HashMap<>();
    private final Verbs verbs;
    private final Loads loads;
    private final Permits permits;

    private Main(RedissonClient client) {
        verbs = new Verbs(client);
        loads = new Loads(client);
        permits = new Permits(client);
    }

    /** The arguments are the settings, as {@code name=value}. */
    public static void main(String[] arguments) throws Exception {
        RedissonClient client = Redisson.create(Settings.of(arguments));
        Main main = new Main(client);
        say("ready " + version() + " " + System.getProperty("java.version"));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = input.readLine(); order != null; order = input.readLine()) {
            main.take(Arrays.asList(order.split(" ")));
        }
        client.shutdown();
        System.exit(0); // also if an actor still waits
    }

    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream file = Redisson.class.getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private void take(List<String> order) {
        String actor = order.get(1);
        actors.computeIfAbsent(actor, Main::thread).execute(() -> obey(order));
    }

    private void obey(List<String> order) {
        String number = order.get(0);
        try {
            say(number + " ok " + run(order.get(2), order.subList(3, order.size())));
        } catch (Throwable exception) {
            String line = exception.getClass().getSimpleName() + ": " + exception.getMessage();
            say(number + " failed " + line.replace('\n', ' '));
        }
    }

    private Object run(String verb, List<String> arguments) throws Exception {
        if (permits.has(verb)) {
            return permits.run(verb, arguments);
        }
        return loads.has(verb) ? loads.run(verb, arguments) : verbs.run(verb, arguments);
    }

    private static Executor thread(String actor) {
        return Executors.newSingleThreadExecutor(work -> {
            Thread thread = new Thread(work, actor);
            thread.setDaemon(true);
            return thread;
        });
    }

    private static void say(String line) {
        OUT.println(line); // whole lines, also from many threads
    }
}
