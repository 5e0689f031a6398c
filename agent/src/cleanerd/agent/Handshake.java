package cleanerd.agent;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Arrays;

/**
 * The beginning of a connection over the loopback, until the client has proven itself. Nothing here waits, and
 * nothing is read that is not part of it: what follows is the client's first request.
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

    /** Takes what has come; true when the client is proven. An IOException when it never will be. */
    boolean advance() throws IOException {
        int count = channel.read(buffer);
        if (count < 0) {
            throw new EOFException("it hung up");
        }
        if (buffer.hasRemaining()) {
            return false;
        }
        if (expected == null) {
            answer(buffer.array());
            return false; // its proof comes after it has got ours
        }
        if (!Proof.same(buffer.array(), expected)) {
            throw new IOException("a wrong proof");
        }
        return true;
    }

    private void answer(byte[] hello) throws IOException {
        if (!Arrays.equals(Arrays.copyOf(hello, Proof.HELLO.length), Proof.HELLO)) {
            throw new IOException("no client of this agent");
        }
        byte[] theirs = Arrays.copyOfRange(hello, Proof.HELLO.length, hello.length);
        byte[] mine = Proof.drawn(Proof.NUMBER_BYTES);
        ByteBuffer out = ByteBuffer.allocate(Proof.NUMBER_BYTES + Proof.BYTES);
        out.put(mine).put(Proof.of(secret, Proof.AGENT, theirs, mine)).flip();
        if (channel.write(out) < out.capacity()) {
            throw new IOException("it does not read");
        }
        expected = Proof.of(secret, Proof.CLIENT, theirs, mine);
        buffer = ByteBuffer.allocate(Proof.BYTES);
    }
}
