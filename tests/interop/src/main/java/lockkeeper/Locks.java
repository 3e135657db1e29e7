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
            "fenced", (client, name) -> newer("getFencedLock", client, name),
            "multi", Locks::multi,
            "non_reentrant", (client, name) -> newer("getNonReentrantLock", client, name),
            "non_reentrant_fair", (client, name) -> newer("getNonReentrantFairLock", client, name),
            "read", (client, name) -> client.getReadWriteLock(name).readLock(),
            "rlock", RedissonClient::getLock,
            "spin", RedissonClient::getSpinLock,
            "write", (client, name) -> client.getReadWriteLock(name).writeLock());

    private Locks() {}

    /** Old versions do not have these: fenced locks exist since 3.19.0, and others since 4.4.0. */
    private static RLock newer(String method, RedissonClient client, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(client, name);
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
