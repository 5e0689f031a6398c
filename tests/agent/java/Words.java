package cleanerd.agent;

import java.io.IOException;

/** Prints a self-test's texts for failures in directories with random names. */
public final class Words {
    private Words() {}

    public static void main(String[] failures) {
        for (String failure : failures) {
            System.out.println(SelfTest.textOf(new IOException(failure)));
        }
    }
}
