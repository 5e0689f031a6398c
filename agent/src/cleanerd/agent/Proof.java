package cleanerd.agent;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Proves that each side of a connection knows the announced secret, without sending it.
 *
 * <p>The client sends {@link #HELLO} and a random number. The agent answers with its own random number and its proof. Then
 * the client sends its proof. Both proofs depend on both numbers, so neither is valid again. They also depend on the side,
 * so they differ. The agent's proof comes first: another process at its port does not see the client's.
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

    /** Bytes of a cryptographic random generator. */
    static byte[] randomBytes(int count) {
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

    /** Compares in constant time. */
    static boolean same(byte[] one, byte[] other) {
        return MessageDigest.isEqual(one, other);
    }
}
