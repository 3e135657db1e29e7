package lockkeeper;

import java.util.Map;
import java.util.stream.Stream;
import java.util.function.BiFunction;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The types of locks. A new one is a row. */
final class Locks {
    private static final Map<String, BiFunction<RedissonClient, String, RLock>> TYPES = Map.of(
            "fair", RedissonClient::getFairLock,
            "fenced", Locks::fenced,
            "multi", Locks::multi,
            "read", (client, name) -> client.getReadWriteLock(name).readLock(),
            "rlock", RedissonClient::getLock,
            "spin", RedissonClient::getSpinLock,
            "write", (client, name) -> client.getReadWriteLock(name).writeLock());

    private Locks() {}

    /** There is none before 3.19.0, so that this program does not know its interface. */
    private static RLock fenced(RedissonClient client, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(client, name);
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }

    /** Of the names between commas, in their order. */
    private static RLock multi(RedissonClient client, String names) {
        return client.getMultiLock(Stream.of(names.split(",")).map(client::getLock).toArray(RLock[]::new));
    }

    static RLock get(RedissonClient client, String type, String name) {
        return TYPES.get(type).apply(client, name);
    }
}
