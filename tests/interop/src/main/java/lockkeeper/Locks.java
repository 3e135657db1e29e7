package lockkeeper;

import java.util.Map;
import java.util.function.BiFunction;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The types of locks. A new one is a row. */
final class Locks {
    private static final Map<String, BiFunction<RedissonClient, String, RLock>> TYPES = Map.of(
            "fair", RedissonClient::getFairLock,
            "read", (client, name) -> client.getReadWriteLock(name).readLock(),
            "rlock", RedissonClient::getLock,
            "spin", RedissonClient::getSpinLock,
            "write", (client, name) -> client.getReadWriteLock(name).writeLock());

    private Locks() {}

    static RLock get(RedissonClient client, String type, String name) {
        return TYPES.get(type).apply(client, name);
    }
}
