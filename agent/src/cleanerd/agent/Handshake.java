package cleanerd.agent;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Arrays;

/**
 * The beginning of a connection over the loopback, until the client has proven that it knows the secret. It never
 * waits, and reads no byte of the client's first request, which follows.
 */
final class Handshake {
    final SocketChannel channel;

    private final byte[] secret;
    private final long deadline;
    private ByteBuffer buffer = ByteBuffer.allocate(Proof.HELLO.length + Proof.NUMBER_BYTES);
    private byte[] expected;

    /** {@code deadline}: by {@link System#nanoTime}. */
    Handshake(SocketChannel channel, byte[] secret, long deadline) {
        this.channel = channel;
        this.secret = secret;
        this.deadline = deadline;
    }

    boolean isLate(long nowNanos) {
        return nowNanos - deadline > 0;
    }

    /** Reads the available bytes. Returns true once the client's proof is right; throws an IOException if it is wrong. */
    boolean advance() throws IOException {
        int count = channel.read(buffer);
        if (count < 0) {
            throw new EOFException("the client disconnected");
        }
        if (buffer.hasRemaining()) {
            return false;
        }
        if (expected == null) {
            answer(buffer.array());
            return false; // the client sends its proof after it has the agent's
        }
        if (!Proof.same(buffer.array(), expected)) {
            throw new IOException("the client's proof is wrong");
        }
        return true;
    }

    private void answer(byte[] hello) throws IOException {
        if (!Arrays.equals(Arrays.copyOf(hello, Proof.HELLO.length), Proof.HELLO)) {
            throw new IOException("the client does not speak the agent's protocol");
        }
        byte[] theirs = Arrays.copyOfRange(hello, Proof.HELLO.length, hello.length);
        byte[] mine = Proof.randomBytes(Proof.NUMBER_BYTES);
        ByteBuffer out = ByteBuffer.allocate(Proof.NUMBER_BYTES + Proof.BYTES);
        out.put(mine).put(Proof.of(secret, Proof.AGENT, theirs, mine)).flip();
        if (channel.write(out) < out.capacity()) {
            throw new IOException("the client does not read");
        }
        expected = Proof.of(secret, Proof.CLIENT, theirs, mine);
        buffer = ByteBuffer.allocate(Proof.BYTES);
    }
}
