package cleanerd.agent;

import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * A release as the broker reports it: {@code 4.3.1}, or a vendor's {@code 3.7.0-amzn}, {@code 4.1.0-SNAPSHOT},
 * {@code 3.9.0.redhat-00003}, {@code 7.6.1-ccs}. The agent uses the release of Apache Kafka that it is built from.
 */
final class Release {
    /**
     * Releases in whose brokers the tests swap. In 3.4, 3.5 and 3.7 the self-test passed; for 4.0 to 4.2 the members were
     * compared.
     */
    private static final Set<String> KNOWN = Set.of("3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9", "4.0", "4.1",
            "4.2", "4.3", "4.4");

    private static final Pattern NUMBER = Pattern.compile("([0-9]{1,4})\\.([0-9]{1,4})(|[.-][A-Za-z0-9._+-]*)");

    /** Apache Kafka in Confluent Platform: 7.6 is 3.6 and 8.1 is 4.1. Confluent Server, -ce, has other code. */
    private static final String CONFLUENT = "-ccs";
    private static final String CONFLUENT_SERVER = "-ce";
    private static final int CONFLUENT_AHEAD = 4;

    private final String version;
    private final String base;

    /**
     * @param version the text that the broker reports, or null
     * @param base the release of Apache Kafka, such as {@code 4.3}; null if the text is not a release
     */
    Release(String version, String base) {
        this.version = version;
        this.base = base;
    }

    static Release of(String version) {
        Matcher matcher = NUMBER.matcher(version == null ? "" : version.trim());
        if (!matcher.matches() || matcher.group(3).endsWith(CONFLUENT_SERVER)) {
            return new Release(version, null);
        }
        int major = Integer.parseInt(matcher.group(1));
        if (matcher.group(3).endsWith(CONFLUENT)) {
            major -= CONFLUENT_AHEAD;
        }
        return new Release(version, major + "." + Integer.parseInt(matcher.group(2)));
    }

    boolean known() {
        return base != null && KNOWN.contains(base);
    }

    String version() {
        return version;
    }

    String base() {
        return base;
    }
}
