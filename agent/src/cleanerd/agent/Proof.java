package cleanerd.agent;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * How each side of a connection shows that it knows the announced secret, without telling it.
 *
 * <p>The client sends {@link #HELLO} and a number drawn by lot; the agent answers with a number of its own and its proof;
 * the client sends its own proof. Both numbers go into both proofs, so that neither is good a second time, and the side
 * does, so that one's is never the other's. The agent goes first: to whoever listens in its place nothing is shown.
 */
final class Proof {
    static final byte[] HELLO = "CLEANERD".getBytes(StandardCharsets.US_ASCII);
    static final int NUMBER_BYTES = 32;
    static final int BYTES = 32;
    static final int SECRET_BYTES = 32;
    static final String AGENT = "cleanerd-agent 1: agent";
    static final String CLIENT = "cleanerd-agent 1: client";

    private static final String ALGORITHM = "HmacSHA256";
    private static final SecureRandom RANDOM = new SecureRandom();

    private Proof() {}

    /** So many bytes that nobody can guess. */
    static byte[] drawn(int count) {
        byte[] bytes = new byte[count];
        RANDOM.nextBytes(bytes);
        return bytes;
    }

    static byte[] of(byte[] secret, String side, byte[] clients, byte[] agents) throws IOException {
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(secret, ALGORITHM));
            mac.update(side.getBytes(StandardCharsets.US_ASCII));
            mac.update(clients);
            return mac.doFinal(agents);
        } catch (GeneralSecurityException e) {
            throw new IOException("this Java has no " + ALGORITHM, e);
        }
    }

    /** Takes as long for a wrong proof as for the right one. */
    static boolean same(byte[] one, byte[] other) {
        return MessageDigest.isEqual(one, other);
    }
}
