package lockkeeper;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;

/** Threads that do the same, and begin together once all of them are there. */
final class Crowd {
    interface Task {
        LongStream run(int number, long began) throws Exception;
    }

    private final Task task;
    private final CyclicBarrier start;
    private volatile long computed;
    private volatile long began;

    private Crowd(int size, Task task) {
        this.task = task;
        start = new CyclicBarrier(size, this::begin);
    }

    /** When they began, what this process has computed since, and what each of them returns. */
    static LongStream run(int size, Task task) throws Exception {
        Crowd crowd = new Crowd(size, task);
        ExecutorService threads = Executors.newFixedThreadPool(size);
        try {
            List<Future<LongStream>> running = new ArrayList<>();
            for (int number = 0; number < size; number++) {
                int own = number;
                running.add(threads.submit(() -> crowd.join(own)));
            }
            LongStream results = LongStream.empty();
            for (Future<LongStream> one : running) {
                results = LongStream.concat(results, one.get());
            }
            return LongStream.concat(LongStream.of(crowd.began, Weight.computed() - crowd.computed), results);
        } finally {
            threads.shutdownNow();
        }
    }

    private void begin() {
        computed = Weight.computed();
        began = System.nanoTime();
    }

    private LongStream join(int number) throws Exception {
        start.await();
        return task.run(number, began);
    }
}
