package lockkeeper;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;
import org.redisson.api.RFuture;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Many locks that are held at the same time, and renewed. */
final class Held {
    private final RedissonClient client;
    private final List<RLock> locks = new ArrayList<>();

    Held(RedissonClient client) {
        this.client = client;
    }

    /** So many, named after this one. All at once, as one after the other takes long. */
    LongStream hold(String type, String name, int count) {
        List<RFuture<Void>> taken = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            RLock lock = Locks.get(client, type, name + ":" + number);
            locks.add(lock);
            taken.add(lock.lockAsync(owner()));
        }
        taken.forEach(one -> one.toCompletableFuture().join());
        return LongStream.empty();
    }

    LongStream letGo() {
        List<RFuture<Void>> released = locks.stream().map(lock -> lock.unlockAsync(owner())).toList();
        released.forEach(one -> one.toCompletableFuture().join());
        locks.clear();
        return LongStream.empty();
    }

    private static long owner() {
        return Thread.currentThread().getId();
    }
}
