package lockkeeper;

import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.redisson.api.RedissonClient;

/**
 * What the benchmark measures, in threads of this process. The first two arguments of each are a type and a name of
 * locks, the others are numbers, and so are the results. Times are in nanoseconds, of {@link System#nanoTime}.
 */
final class Loads {
    private interface Load {
        LongStream run(String type, String name, int[] numbers) throws Exception;
    }

    private final Map<String, Load> loads;

    Loads(RedissonClient client) {
        Sections sections = new Sections(client);
        Waiters waiters = new Waiters(client);
        Held held = new Held(client);
        loads = Map.of(
                "sections", (type, names, is) -> sections.run(type, names.split(","), is[0], is[1], is[2]),
                "wait", (type, name, is) -> waiters.wait(type, name, is[0]),
                "serve", (type, name, is) -> waiters.serve(is[0]),
                "hold", (type, name, is) -> held.hold(type, name, is[0]),
                "let_go", (type, name, is) -> held.letGo(),
                "weigh", (type, name, is) -> Weight.inMemory());
    }

    boolean has(String load) {
        return loads.containsKey(load);
    }

    String run(String load, List<String> arguments) throws Exception {
        int[] numbers = arguments.stream().skip(2).mapToInt(Integer::parseInt).toArray();
        LongStream results = loads.get(load).run(arguments.get(0), arguments.get(1), numbers);
        return String.join(" ", results.mapToObj(Long::toString).toList());
    }
}
