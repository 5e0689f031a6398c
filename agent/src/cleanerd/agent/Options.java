package cleanerd.agent;

import java.nio.file.Path;
import java.util.Set;

/** The agent's arguments. */
final class Options {
    private Path socket;
    private String transport;
    private boolean allowUnknownVersion;

    private Options() {}

    static Options parse(String arguments) {
        Options options = new Options();
        for (String argument : arguments.split(",")) {
            int equals = argument.indexOf('=');
            options.set(equals < 0 ? argument : argument.substring(0, equals),
                    equals < 0 ? "" : argument.substring(equals + 1));
        }
        return options;
    }

    private void set(String key, String value) {
        switch (key) {
            case "":
            case "jar":
                return;
            case "socket":
                socket = Path.of(value).toAbsolutePath();
                return;
            case "transport":
                if (!Set.of(Transport.UNIX, Transport.LOOPBACK).contains(value)) {
                    throw new IllegalArgumentException("transport=" + value + "; use unix or loopback");
                }
                transport = value;
                return;
            case "allow-unknown-version":
                allowUnknownVersion = value.equals("true");
                return;
            default:
                throw new IllegalArgumentException("unknown argument '" + key
                        + "'; valid are socket=PATH, transport=unix or loopback, jar=PATH and allow-unknown-version=true");
        }
    }

    /** The path to listen at; null: in the broker's first log directory (U-31). */
    Path socket() {
        return socket;
    }

    /** The transport's name; null: unix if this Java supports it. */
    String transport() {
        return transport;
    }

    /** Whether an unknown release with all members may be used. */
    boolean allowUnknownVersion() {
        return allowUnknownVersion;
    }
}
