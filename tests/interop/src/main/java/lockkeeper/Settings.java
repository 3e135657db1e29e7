package lockkeeper;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Redisson's configuration. What is not set is as Redisson has it. */
final class Settings {
    private Settings() {}

    /** The first argument is the address. */
    static Config of(String[] arguments) {
        Config config = new Config();
        SingleServerConfig server = config.useSingleServer().setAddress(arguments[0]);
        for (String argument : Arrays.asList(arguments).subList(1, arguments.length)) {
            String[] setting = argument.split("=", 2);
            switch (setting[0]) {
                case "small" -> small(config, server);
                case "watchdog" -> config.setLockWatchdogTimeout(Long.parseLong(setting[1]));
                case "prefix" -> prefix(setting[1], config, server);
                case "text" -> config.setCodec(StringCodec.INSTANCE); // instead of Kryo
                default -> throw new IllegalArgumentException(argument);
            }
        }
        return config;
    }

    /** For many of these programs side by side on one machine. */
    private static void small(Config config, SingleServerConfig server) {
        config.setThreads(4).setNettyThreads(2);
        // Three seconds otherwise; and a lock that was not answered in time is an error.
        server.setTimeout(20_000);
        server.setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
    }

    /** Version 4 moved the interface to another package, and later its setter to another class. */
    private static void prefix(String prefix, Object... configs) {
        InvocationHandler mapper = (self, method, names) -> switch (method.getName()) {
            case "map" -> prefix + names[0];
            case "unmap" -> names[0].toString().substring(prefix.length());
            default -> throw new UnsupportedOperationException(method.getName());
        };
        for (Object config : configs) {
            for (Method setter : config.getClass().getMethods()) {
                if (setter.getName().equals("setNameMapper")) {
                    Class<?> type = setter.getParameterTypes()[0];
                    invoke(setter, config, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, mapper));
                    return;
                }
            }
        }
    }

    private static void invoke(Method setter, Object config, Object value) {
        try {
            setter.invoke(config, value);
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }
}
