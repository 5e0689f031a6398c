package cleanerd.agent;

/** Prints, for each argument, the release of Apache Kafka that it counts as, and whether that is known. */
final class Releases {
    private Releases() {}

    public static void main(String[] arguments) {
        for (String told : arguments) {
            Release release = Release.of(told);
            System.out.println(release.base() + " " + release.known());
        }
        System.out.println(Release.of(null).base() + " " + Release.of(null).known());
    }
}
